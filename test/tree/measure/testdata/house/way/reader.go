package way

import "fmt"

// Store is declared here, so that its implementations are doors.
type Store interface{ Get(name string) }

// Door goes into implementations that are linked, and into none of an interface of others.
func Door(s Store, name string) {
	s.Get(name)
	var asked fmt.Formatter = formatter{}
	asked.Format(nil, rune(name[0]))
}

type formatter struct{}

func (formatter) Format(fmt.State, rune) {}
