package main

import (
	"cmp"
	"fmt"
	"slices"
)

// report is all that is counted.
type report struct {
	Packages   []packageCount // largest first
	Functions  []function
	Structures []structure
	Trips      []tripCount
}

type packageCount struct {
	Path   string
	Files  int
	Lines  int
	Arrows int
	Back   []arrow
}

type tripCount struct {
	flow
	trip
}

// measure counts everything. The flows are those that it is given, since another checkout
// may have other names.
func measure(t *tree, flows []flow) (report, error) {
	var r report
	changed := t.changed()
	for _, u := range t.Units {
		files := u.counted()
		if len(files) == 0 {
			continue
		}
		g := t.arrows(u)
		p := packageCount{Path: u.Path, Files: len(files), Arrows: g.all(), Back: g.back()}
		for _, s := range files {
			p.Lines += s.Lines
		}
		r.Packages = append(r.Packages, p)
		r.Functions = append(r.Functions, t.functions(u)...)
		r.Structures = append(r.Structures, t.structures(u, changed)...)
	}
	slices.SortStableFunc(r.Packages, func(a, b packageCount) int { return cmp.Compare(b.Lines, a.Lines) })
	c := newCalls(t)
	for _, f := range flows {
		c.link(f.Program)
		way, err := c.walk(f.Start)
		if err != nil {
			return report{}, fmt.Errorf("%s: %w: mend the flows in goals.go", f.Name, err)
		}
		r.Trips = append(r.Trips, tripCount{flow: f, trip: way})
	}
	return r, nil
}

// missed are the goals that the code misses, without regard to exceptions.
func (r report) missed() []missed {
	var found []missed
	check := func(g goal, subject string, number, limit int) {
		if number > limit {
			found = append(found, missed{Goal: g, Subject: subject, Number: number, Limit: limit})
		}
	}
	for _, p := range r.Packages {
		check(packageLines, p.Path, p.Lines, maxPackage)
		if p.Files >= manyFiles {
			check(arrowsBack, p.Path, len(p.Back), p.Arrows/backShare)
		}
	}
	for _, s := range r.Structures {
		if s.Kind == state {
			check(structFields, s.Name, s.Fields, maxFields)
		}
		if s.Kind != api {
			check(typeMethods, s.Name, s.Methods, maxMethods)
		}
	}
	for _, f := range r.Functions {
		check(functionLines, f.Name, f.Lines, maxFunction)
		check(functionDepth, f.Name, f.Depth, maxDepth)
	}
	for _, way := range r.Trips {
		if way.flow.Files > 0 {
			check(tripFiles, way.Name, way.trip.Files(), way.flow.Files)
			check(tripReturns, way.Name, way.trip.Returns(), way.flow.Returns)
		}
	}
	return found
}
