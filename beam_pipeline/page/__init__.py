"""A dataset as one HTML file.

    dataset -> sample -> counts, histograms, pictures, equal images -> page.html.jinja

Jinja2 is imported by `build` alone.
"""
