"""What commands and pages say of a lake: the same rows and documents, whoever shows them."""
