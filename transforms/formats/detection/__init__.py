"""COCO, Pascal VOC and AutoML manifests: images with boxes, as rows of images."""
