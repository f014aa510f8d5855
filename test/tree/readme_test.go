package tree

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fencedBlock = regexp.MustCompile("(?s)\n```.*?\n```")
	codeWord    = regexp.MustCompile("`([^`\n]+)`")
)

// Each README of a subject of test/e2e says what each file with tests is about: it names the file, or
// a glob that it matches. main_test.go is the same everywhere.
func TestSubjectReadmesNameTheirTests(t *testing.T) {
	all := files(t)
	subjects := 0
	for _, readme := range all {
		dir := path.Dir(readme)
		if path.Base(readme) != "README.md" || path.Dir(dir) != "test/e2e" {
			continue
		}
		subjects++
		var named []string
		for _, found := range codeWord.FindAllStringSubmatch(fencedBlock.ReplaceAllString(string(read(t, readme)), ""), -1) {
			named = append(named, found[1])
		}
		for _, name := range all {
			base := path.Base(name)
			if path.Dir(name) != dir || !strings.HasSuffix(base, "_test.go") || base == "main_test.go" {
				continue
			}
			if !slices.ContainsFunc(named, func(glob string) bool {
				matches, err := path.Match(glob, base)
				return err == nil && matches
			}) {
				t.Errorf("%s does not name %s: say there what it tests", readme, base)
			}
		}
	}
	if subjects == 0 {
		t.Error("test/e2e has no folder with a README.md: mend this test")
	}
}
