package way

func second(name string) { _, _ = check(name) }

func check(name string) (bool, error) { return name == "", nil }
