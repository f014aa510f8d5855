package way

func first(v Value) { _ = v.label() }

func third(v Value) {
	name := v.label()
	fourth(name)
}
