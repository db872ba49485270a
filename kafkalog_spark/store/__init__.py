"""Stores of files, local directories and object stores, with one small interface."""
