// Package mesh tests end to end: the objects that we render for a mesh, and that they keep what they promise.
//
// README.md tells what it runs on.
package mesh
