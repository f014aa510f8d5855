package main

import (
	"bytes"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// house is the small module in testdata, read once.
var house struct {
	sync.Once
	tree *tree
	err  error
}

func loadHouse(t *testing.T) *tree {
	t.Helper()
	house.Do(func() { house.tree, house.err = load(t.Context(), filepath.Join("testdata", "house")) })
	if house.err != nil {
		t.Fatal(house.err)
	}
	return house.tree
}

func unitOfHouse(t *testing.T, path string) *unit {
	t.Helper()
	for _, u := range loadHouse(t).Units {
		if u.Path == path {
			return u
		}
	}
	t.Fatalf("no package %s", path)
	return nil
}

func TestProductCode(t *testing.T) {
	r, err := measure(loadHouse(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]packageCount)
	for _, p := range r.Packages {
		p.Back = nil
		got[p.Path] = p
	}
	if _, ok := got["test/helper"]; ok {
		t.Error("a package below test/ is counted")
	}
	want := packageCount{Path: "arrows", Files: 4, Lines: 21, Arrows: 4} // neither made.go nor arrows_test.go
	if diff := cmp.Diff(want, got["arrows"]); diff != "" {
		t.Errorf("arrows (-want +got):\n%s", diff)
	}
}

func TestArrows(t *testing.T) {
	got := loadHouse(t).arrows(unitOfHouse(t, "arrows")).back()
	// Top and middle name each other: one of both runs back, whichever is above.
	if want := []arrow{{From: "arrows/top.go", To: "arrows/middle.go"}}; !slices.Equal(got, want) {
		t.Errorf("back up run %v, want %v", got, want)
	}
}

func TestOrderHasFewestArrowsBack(t *testing.T) {
	for name, tt := range map[string]struct {
		arrows []string
		back   int
	}{
		"nothing":                       {nil, 0},
		"a line":                        {[]string{"ab", "bc", "cd"}, 0},
		"a line, files in other order":  {[]string{"dc", "cb", "ba"}, 0},
		"a diamond":                     {[]string{"ab", "ac", "bd", "cd"}, 0},
		"a circle of three":             {[]string{"ab", "bc", "ca"}, 1},
		"two circles apart":             {[]string{"ab", "ba", "cd", "dc"}, 2},
		"two circles, one file in both": {[]string{"ab", "bc", "ca", "cd", "da"}, 1},
		"everybody names everybody":     {[]string{"ab", "ba", "ac", "ca", "bc", "cb"}, 3},
		"a heavy file that is named back by one": {
			[]string{"ea", "eb", "ec", "ed", "ae", "ab", "bc", "cd"}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph{Files: strings.Split("abcde", "")}
			for range g.Files {
				g.names = append(g.names, make([]bool, len(g.Files)))
			}
			for _, a := range tt.arrows {
				g.names[a[0]-'a'][a[1]-'a'] = true
			}
			if got := g.back(); len(got) != tt.back {
				t.Errorf("%d arrows run back up, want %d: %v", len(got), tt.back, got)
			}
			if order := g.order(); !slices.Equal(slices.Sorted(slices.Values(order)), []int{0, 1, 2, 3, 4}) {
				t.Errorf("the order %v has not each file once", order)
			}
		})
	}
}

func TestFunctions(t *testing.T) {
	want := []function{
		{Name: "functions.Flat", Lines: 4, Depth: 0},
		{Name: "functions.holder.One", Lines: 1, Depth: 0},
		{Name: "functions.Deep", Lines: 17, Depth: 4},
		{Name: "functions.Chain", Lines: 9, Depth: 1},
	}
	if diff := cmp.Diff(want, loadHouse(t).functions(unitOfHouse(t, "functions"))); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for q, want := range map[float64]int{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("quantile(%v) = %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing = %d", got)
	}
}

func TestStructures(t *testing.T) {
	tree := loadHouse(t)
	got := make(map[string]structure)
	for _, path := range []string{"api", "kinds"} {
		for _, s := range tree.structures(unitOfHouse(t, path), tree.changed()) {
			got[s.Name] = s
		}
	}
	want := make(map[string]structure)
	for _, s := range []structure{
		{Name: "api.Thing", Kind: api, Fields: 1},
		{Name: "kinds.Config", Kind: settings, Fields: 2},
		{Name: "kinds.Waiting", Kind: state, Fields: 2},
		{Name: "kinds.Changing", Kind: state, Fields: 1},
		{Name: "kinds.counted", Kind: state, Fields: 1},
		{Name: "kinds.pair", Kind: record, Fields: 2, Methods: 1},
		{Name: "kinds.written", Kind: record, Fields: 2, Methods: 1},
		{Name: "kinds.base", Kind: record, Fields: 2, Methods: 2},
		{Name: "kinds.embedding", Kind: state, Fields: 5, Methods: 3},
		{Name: "kinds.number", Kind: plain, Methods: 1},
	} {
		want[s.Name] = s
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

func TestManyMethodsAreState(t *testing.T) {
	config, ok := unitOfHouse(t, "kinds").Types.Scope().Lookup("Config").Type().Underlying().(*types.Struct)
	if !ok {
		t.Fatal("kinds.Config is no struct")
	}
	if got := kindOf("kinds", config, false, maxMethods); got != settings {
		t.Errorf("with as many methods as the goal allows it is %v", got)
	}
	if got := kindOf("kinds", config, false, maxMethods+1); got != state {
		t.Errorf("with a method more than the goal allows it is %v", got)
	}
}

func TestWalk(t *testing.T) {
	for start, tt := range map[string]struct {
		program string
		files   []string
	}{
		"way.Start:v":      {"", []string{"start", "first", "second", "first", "fourth"}},
		"way.Start:other":  {"", []string{"start", "fourth"}},
		"way.Verdict:name": {"", []string{"result", "second", "first"}},
		"way.Table:v":      {"", []string{"table", "first", "table", "fourth"}},
		"way.Loop:v":       {"", []string{"table", "first", "fourth"}},
		"way.Callback:v":   {"", []string{"table", "first", "fourth"}},
		"way.Parameter:v":  {"", []string{"table"}},
		"way.Union:name":   {"", []string{"union", "fourth"}},
		"way.Unknown:in":   {"", []string{"union", "fourth", "second"}},
		"way.Door:name":    {"", []string{"reader", "elsewhere", "store"}},
	} {
		t.Run(start, func(t *testing.T) {
			c := newCalls(loadHouse(t))
			c.link(tt.program)
			checkWalk(t, c, start, tt.files)
		})
	}
	t.Run("only what the program links", func(t *testing.T) {
		c := newCalls(loadHouse(t))
		c.link("cmd/hub")
		checkWalk(t, c, "way.Door:name", []string{"reader", "store"})
	})
}

func checkWalk(t *testing.T, c *calls, start string, want []string) {
	t.Helper()
	way, err := c.walk(start)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	files := make(map[string]bool)
	for _, s := range way.Stays {
		name := strings.TrimSuffix(filepath.Base(s.File), ".go")
		got = append(got, name)
		files[name] = true
	}
	if !slices.Equal(got, want) {
		t.Errorf("the value stays in %v, want %v", got, want)
	}
	if way.Files() != len(files) || way.Returns() != len(got)-len(files) {
		t.Errorf("%d files and %d returns of %v", way.Files(), way.Returns(), slices.Sorted(maps.Keys(files)))
	}
}

func TestWalkWithoutItsStart(t *testing.T) {
	for _, start := range []string{"", "way.Start", "way.Gone:v", "way.Start:gone"} {
		if _, err := newCalls(loadHouse(t)).walk(start); err == nil {
			t.Errorf("walk(%q) begins somewhere", start)
		}
	}
}

func TestPrint(t *testing.T) {
	var first, second bytes.Buffer
	root := filepath.Join("testdata", "house")
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := printTree(t.Context(), out, options{root: root, trips: true, arrows: "arrows"}, []flow{{Name: "a value", Start: "way.Start:v"}}); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two runs print different tables")
	}
	for _, want := range []string{"arrows/top.go names what arrows/middle.go declares", "a value (way.Start:v)", "way/second.go: way.second, way.check"} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("the table does not have %q:\n%s", want, first.String())
		}
	}
}
