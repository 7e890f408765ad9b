"""Reading datasets back: rows, columns and conditions over them."""
