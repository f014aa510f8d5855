package appproject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
)

// PatternProblem says which part of a project's spec has a pattern that would keep an Argo CD busy that matches it, or
// end what reads it; empty for none. Matching takes a time that grows with the power of the wildcards of one pattern,
// so one may have maxStars; alternatives in braces count as one. Roles are not looked at, since what becomes of them on
// a hub has bounds of its own. A window's schedule that names a time zone and nothing else is a problem, too: the
// parser that Argo CD has panics by it (robfig/cron, Parser.Parse).
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
	for _, w := range object.ListAt(spec, "syncWindows") {
		window, _ := w.(map[string]any)
		schedule := object.StringAt(window, "schedule")
		zoned := strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ=")
		if zoned && !strings.Contains(schedule, " ") {
			return fmt.Sprintf("the schedule %s in spec.syncWindows has a time zone and no time", object.Quoted(schedule))
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
