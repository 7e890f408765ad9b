"""Encoded images: inspect them, check that TensorFlow reads them, transform them.

check.py     a file -> its facts or its fault; jpeg.py png.py bmp.py gif.py webp.py
policy.py    a file and a policy -> the image to be stored; plan.py resize.py
             exif.py pixels.py foreign.py geometry.py notes.py
choices.py   what settings may say
png_encode.py    raw pixels -> PNG files
"""
