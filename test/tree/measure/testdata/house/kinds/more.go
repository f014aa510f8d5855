package kinds

func (*embedding) third() {}
