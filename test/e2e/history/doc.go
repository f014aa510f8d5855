// Package history tests end to end: what becomes of objects when a side was away, restored from a backup, rebuilt, or deleted a lot at once.
//
// README.md tells what it runs on.
package history
