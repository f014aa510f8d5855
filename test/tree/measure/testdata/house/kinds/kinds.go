// Package kinds has one struct of each kind.
package kinds

import "sync"

// Config is filled by others and not changed.
type Config struct {
	Name string
	Size int
}

// Waiting cannot be settings: it has a lock.
type Waiting struct {
	Mutex sync.Mutex
	Size  int
}

// Changing cannot be settings: a function changes it.
type Changing struct{ Size int }

func grow(c *Changing) { c.Size++ }

type counted struct{ byName map[string]int }

func forget(c *counted, name string) { delete(c.byName, name) }

type pair struct{ one, two int }

func (p pair) with(one int) pair {
	p.one = one
	return p
}

type written struct {
	Name string `json:"name"`
	size int    `json:"-"`
}

func (w *written) grow() { w.size++ }

type base struct{ one, two int }

func (*base) first()  {}
func (*base) second() {}

type embedding struct {
	base
	three struct{ four, five int }
	ready chan struct{}
}

type number int

func (number) String() string { return "" }
