"""A dataset as one HTML file.

    dataset -> sample -> distributions, pictures, equal images -> page.html.jinja

`distributions` is pure: numbers in, facts or SVG out. Jinja2 is imported by `build`
alone.
"""
