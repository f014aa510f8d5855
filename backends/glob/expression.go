package glob

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gobwas/glob/syntax/ast"
)

// expressionOf is the regular expression of a glob.
func expressionOf(glob *ast.Node, separators []rune) string {
	var b strings.Builder
	one := "."
	if len(separators) > 0 {
		one = oneOf(true, separators)
	}
	writeExpression(&b, glob, one)
	return b.String()
}

// writeExpression writes that of a part; one is any character that a star stands for.
func writeExpression(b *strings.Builder, part *ast.Node, one string) {
	switch part.Kind {
	case ast.KindText:
		b.WriteString(regexp.QuoteMeta(part.Value.(ast.Text).Text))
	case ast.KindSingle:
		b.WriteString(one)
	case ast.KindAny:
		b.WriteString(one + "*")
	case ast.KindSuper:
		b.WriteString(".*")
	case ast.KindList:
		list := part.Value.(ast.List)
		b.WriteString(oneOf(list.Not, []rune(list.Chars)))
	case ast.KindRange:
		r := part.Value.(ast.Range)
		b.WriteString(bracket(r.Not, codeOf(r.Lo)+"-"+codeOf(r.Hi)))
	case ast.KindAnyOf:
		b.WriteString("(?:")
		for i, way := range part.Children {
			if i > 0 {
				b.WriteByte('|')
			}
			writeExpression(b, way, one)
		}
		b.WriteByte(')')
	default: // a sequence, or nothing
		for _, next := range part.Children {
			writeExpression(b, next, one)
		}
	}
}

// oneOf is one character of those, or any other.
func oneOf(not bool, characters []rune) string {
	var inner strings.Builder
	for _, c := range characters {
		inner.WriteString(codeOf(c))
	}
	return bracket(not, inner.String())
}

func bracket(not bool, inner string) string {
	if not {
		return "[^" + inner + "]"
	}
	return "[" + inner + "]"
}

// codeOf writes a character so that it has no other meaning.
func codeOf(c rune) string { return fmt.Sprintf(`\x{%x}`, c) }
