"""All that depends on what Beam does not promise: names that it may change.

shortcuts.py   patches two of its functions, which it calls thousands of times
loading.py     imports it beside planning, without libraries that it needs not
runners.py     patches how it starts and stops job servers
"""
