"""COCO and Pascal VOC: images with boxes, as the TF Object Detection API names them."""
