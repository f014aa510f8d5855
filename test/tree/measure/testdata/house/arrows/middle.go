package arrows

func middle() string { return bottom{field: title}.field }
