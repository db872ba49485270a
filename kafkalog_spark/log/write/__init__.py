"""From Arrow columns to segments: encoding, compressing, rolling, restamping."""
