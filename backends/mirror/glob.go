package mirror

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gobwas/glob"
)

// maxGlob is the longest pattern that is read, in bytes. Braces within braces take stack,
// of which a pattern of the size of an object would take all.
const maxGlob = 64 << 10

// compileGlob reads a pattern of Argo CD's, in which a star stands for no separator. Whoever may write an AppProject may write any,
// and glob panics with some, such as "a{", when it reads or when it matches.
func compileGlob(pattern string, separators ...rune) (matches func(s string) bool, err error) {
	if len(pattern) > maxGlob {
		return nil, errors.New("the pattern is too long")
	}
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("the pattern cannot be read: %v", problem)
		}
	}()
	compiled, err := glob.Compile(pattern, separators...)
	if err != nil {
		return nil, err
	}
	return func(s string) (matched bool) {
		defer func() {
			if problem := recover(); problem != nil {
				matched = false
			}
		}()
		return compiled.Match(s)
	}, nil
}

// globMatches treats a pattern that cannot be read as one that matches nothing.
func globMatches(pattern, s string) bool {
	switch {
	case pattern == "*":
		return true
	case !strings.ContainsAny(pattern, `*?[]{}\`): // a name, as nearly always
		return pattern == s
	}
	matches, err := compileGlob(pattern)
	return err == nil && matches(s)
}

// parses reports whether a pattern can be read.
func parses(pattern string) bool {
	_, err := compileGlob(pattern)
	return err == nil
}
