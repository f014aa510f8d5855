package way

// Verdict follows what is made of the value, but neither error nor bool.
func Verdict(name string) {
	ok, err := check(name)
	told(ok, err)
	kept := Value{Name: name}
	first(kept)
}

func told(bool, error) {}
