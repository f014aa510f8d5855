// Package elsewhere is not linked by the hub.
package elsewhere

// Disk implements way.Store.
type Disk struct{}

// Get gets.
func (*Disk) Get(name string) { _ = name }
