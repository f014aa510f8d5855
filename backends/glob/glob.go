// Package glob matches patterns as Argo CD does, no matter who wrote them: none panics, and none takes
// longer than anyone waits. It is pure.
package glob

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gobwas/glob"
	"github.com/gobwas/glob/syntax"
)

const (
	// MaxLength is the longest pattern that is read, in bytes. Braces within braces take
	// stack, of which a pattern of the size of an object would take all.
	MaxLength = 8 << 10
	// maxWild is how many stars and the like a pattern has about which Argo CD's library
	// is asked, and maxPlain how long a text is, in bytes: it takes a time that grows with
	// the length of a text by the power of their number, for days where there are forty.
	// What is beyond that is matched by the regular expression of the same meaning, in a
	// time that is linear. What the library gets wrong, such as that "?" matches nothing
	// at all, is then not repeated.
	maxWild  = 4
	maxPlain = 512
)

// Compile reads a pattern of Argo CD's, in which a star stands for no separator.
// Anyone who may write an AppProject may write any, and glob panics with some, such as "a{",
// when it reads or when it matches.
func Compile(pattern string, separators ...rune) (matches func(s string) bool, err error) {
	if len(pattern) > MaxLength {
		return nil, errors.New("the pattern is too long")
	}
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("the pattern cannot be read: %v", problem)
		}
	}()
	if wild(pattern) > maxWild {
		re, err := expressionFor(pattern, separators)
		if err != nil {
			return nil, err
		}
		return re.MatchString, nil
	}
	compiled, err := glob.Compile(pattern, separators...)
	if err != nil {
		return nil, err
	}
	long := sync.OnceValues(func() (*regexp.Regexp, error) { return expressionFor(pattern, separators) })
	return func(s string) (matched bool) {
		defer func() {
			if problem := recover(); problem != nil {
				matched = false
			}
		}()
		if len(s) > maxPlain {
			re, err := long()
			return err == nil && re.MatchString(s)
		}
		return compiled.Match(s)
	}, nil
}

// expressionFor reads a pattern as the regular expression of the same meaning.
func expressionFor(pattern string, separators []rune) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern)
	if err != nil {
		return nil, err
	}
	return regexp.Compile(`(?s)\A` + expressionOf(tree, separators) + `\z`)
}

// wild is how many characters of a pattern may stand for others.
func wild(pattern string) (n int) {
	for _, c := range pattern {
		if strings.ContainsRune("*?[{", c) {
			n++
		}
	}
	return n
}

// Matches treats a pattern that cannot be read as one that matches nothing.
func Matches(pattern, s string) bool {
	switch {
	case pattern == "*":
		return true
	case !strings.ContainsAny(pattern, `*?[]{}\`): // a name, as nearly always
		return pattern == s
	}
	matches, err := Compile(pattern)
	return err == nil && matches(s)
}

// Parses reports whether a pattern can be read.
func Parses(pattern string) bool {
	_, err := Compile(pattern)
	return err == nil
}

// MatchesDestination matches as Argo CD does in the destinations of an AppProject: "!"
// in front stands for all others.
func MatchesDestination(pattern, value string) bool {
	if denied, found := strings.CutPrefix(pattern, "!"); found {
		return !Matches(denied, value)
	}
	return Matches(pattern, value)
}

// Any reports whether one of the globs matches.
func Any(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return Matches(g, s) })
}

// Negated reports whether Argo CD takes a pattern for one of all that it does not match.
func Negated(pattern string) bool { return strings.HasPrefix(pattern, "!") }
