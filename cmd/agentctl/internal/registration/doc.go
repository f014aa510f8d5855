// Package registration brings the entries of a SPIRE server, or the objects of its controller
// manager, to what is asked for, and prints the difference. The plan is that of mesh/spire.
package registration
