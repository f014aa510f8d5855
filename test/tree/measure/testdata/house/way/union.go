package way

type input interface{ isInput() }

type one struct{ name string }

type two struct{ name string }

func (one) isInput() {}
func (two) isInput() {}

// Union is walked in the case of its own type.
func Union(name string) { step(one{name: name}) }

// Unknown is walked in every case.
func Unknown(in input) { step(in) }

func step(in input) {
	switch in := in.(type) {
	case one:
		fourth(in.name)
	case two:
		second(in.name)
	}
}
