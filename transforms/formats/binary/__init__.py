"""Records of one length: CIFAR, IDX, and any layout that is described."""
