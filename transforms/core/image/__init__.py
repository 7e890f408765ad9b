"""Encoded images: inspect them, check that TensorFlow reads them, transform them.

formats.py   the table of formats; facts and notes about one image
check.py     a file -> its facts or its fault, or its pixels by Pillow; with jpeg.py
             and png.py, which walk over these two, and decode them
policy.py    a file and a policy -> the image to store; with resize.py,
             which also turns, and pixels.py
png.py       also raw pixels -> PNG files
masks.py     outlines and runs of objects -> masks of 0 and 1; any file of class
             numbers -> these numbers
"""
