"""The demo of `make run`: joins records that it produces, shows the results and checks them."""
