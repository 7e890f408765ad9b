"""COCO, VOC, YOLO, LabelMe, tables of boxes and AutoML manifests as rows of images."""
