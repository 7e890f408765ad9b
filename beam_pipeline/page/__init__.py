"""The page that `report` writes: a dataset as one HTML file.

    dataset -> sample -> distributions, thumbnails, equal images -> page.html.jinja

`distributions` and `charts` are pure: numbers in, facts or SVG out. Jinja2 is imported
by `build` alone.
"""
