// Package arrows has files that name each other.
package arrows

// Top names middle and bottom.
func Top() string { return middle() + bottom{}.name() }

const title = "top"
