"""What tests share: data sets, readers, faults and measurements."""
