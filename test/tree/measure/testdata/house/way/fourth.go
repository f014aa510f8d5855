package way

func fourth(name string) { _ = name }
