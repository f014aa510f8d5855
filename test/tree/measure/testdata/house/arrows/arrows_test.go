package arrows

var _ = title
