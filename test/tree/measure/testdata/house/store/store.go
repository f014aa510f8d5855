// Package store is linked.
package store

// Memory implements way.Store.
type Memory struct{}

// Get gets.
func (Memory) Get(name string) { _ = name }
