package arrows

type bottom struct{ field string }

func (b bottom) name() string { return b.field }
