// Package functions has functions of known sizes.
package functions

// Flat has four lines, and the comment is none of them.
func Flat() int {
	one := 1
	return one
}

type holder struct{}

func (*holder) One() {}

// Deep is four deep, and its else if as deep as its if.
func Deep(list []int) {
	for range list { // 1
		if len(list) > 1 { // 2
			_ = func() { // 3
				switch len(list) {
				case 4: // 4
				}
			}
		} else if len(list) > 2 { // 2
			_ = list
		} else {
			if len(list) > 3 { // 3
				_ = list
			}
		}
	}
}

// Chain is one deep.
func Chain(n int) {
	if n == 1 {
		_ = n
	} else if n == 2 {
		_ = n
	} else if n == 3 {
		_ = n
	}
}
