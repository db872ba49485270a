"""Whether log directories hold what a broker may leave there: a scan that changes nothing and tells what it finds."""
