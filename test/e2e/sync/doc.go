// Package sync tests end to end: every object and command that passes the link, in both modes and both mappings, with a real Argo CD on both sides.
//
// README.md tells what it runs on.
package sync
