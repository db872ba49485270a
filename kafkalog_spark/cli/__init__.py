"""Command-line programs: parsing of arguments and printing of results."""
