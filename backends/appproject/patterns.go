package appproject

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PatternProblem says which part of a project's spec has a pattern that would keep an Argo CD busy that matches it;
// empty for none. Matching takes a time that grows with the power of the wildcards of one pattern, so one may have
// maxStars; alternatives in braces count as one. Roles are not looked at, since what becomes of them on a hub has
// bounds of its own.
func PatternProblem(spec map[string]any) string {
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		if field == "roles" || field == "description" {
			continue
		}
		if n := mostWildcards(spec[field]); n > maxStars {
			return fmt.Sprintf("a pattern in spec.%s has %d wildcards, and one may have %d: matching them takes Argo CD too long",
				field, n, maxStars)
		}
	}
	return ""
}

// mostWildcards returns how many wildcards a text has that is in a value, the most of all.
func mostWildcards(value any) (most int) {
	switch value := value.(type) {
	case string:
		return strings.Count(value, "*") + strings.Count(value, "{")
	case []any:
		for _, item := range value {
			most = max(most, mostWildcards(item))
		}
	case map[string]any:
		for _, item := range value {
			most = max(most, mostWildcards(item))
		}
	}
	return most
}
