package arrows

func alone() string {
	title := "not the one of top.go"
	return title
}
