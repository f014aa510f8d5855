package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// printedPackages is how many packages are printed; larger ones than the goal always are.
const printedPackages = 15

// printer writes a report as text. The first error of the writer stays.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

func (p *printer) packages(r report) {
	lines, files := 0, 0
	for _, c := range r.Packages {
		lines, files = lines+c.Lines, files+c.Files
	}
	p.f("packages %d, files %d, lines %d", len(r.Packages), files, lines)
	p.f("%8s %6s %7s %5s  package", "lines", "files", "arrows", "back")
	for i, c := range r.Packages {
		if i < printedPackages || c.Lines > maxPackage || c.Files >= manyFiles && len(c.Back) > c.Arrows/backShare {
			p.f("%8d %6d %7d %5d  %s", c.Lines, c.Files, c.Arrows, len(c.Back), c.Path)
		}
	}
}

func (p *printer) functions(r report) {
	lines := numbersOf(r.Functions, func(f function) int { return f.Lines })
	depths := numbersOf(r.Functions, func(f function) int { return f.Depth })
	p.f("\nfunctions %d", len(r.Functions))
	p.f("%8s %4s %4s %4s %4s", "", "p50", "p90", "p99", "max")
	for _, row := range []struct {
		name    string
		numbers []int
	}{{"lines", lines}, {"depth", depths}} {
		p.f("%8s %4d %4d %4d %4d", row.name,
			quantile(row.numbers, 0.5), quantile(row.numbers, 0.9), quantile(row.numbers, 0.99), quantile(row.numbers, 1))
	}
	for _, f := range r.Functions {
		if f.Lines > maxFunction || f.Depth > maxDepth {
			p.f("%8d lines, depth %d  %s", f.Lines, f.Depth, f.Name)
		}
	}
}

// Printed are types that come near to a goal.
const (
	nearFields  = maxFields * 3 / 4
	nearMethods = maxMethods * 3 / 4
)

func (p *printer) structures(r report) {
	kinds := make(map[kind]int)
	var large []structure
	for _, s := range r.Structures {
		kinds[s.Kind]++
		if s.Fields >= nearFields || s.Methods >= nearMethods {
			large = append(large, s)
		}
	}
	p.f("\nstructs of state %d, settings %d, records %d, of the Kubernetes API %d", kinds[state], kinds[settings], kinds[record], kinds[api])
	p.f("%8s %8s  %-8s  type", "fields", "methods", "kind")
	slices.SortStableFunc(large, func(a, b structure) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Fields+b.Methods, a.Fields+a.Methods))
	})
	for _, s := range large {
		p.f("%8d %8d  %-8s  %s", s.Fields, s.Methods, s.Kind, s.Name)
	}
}

func (p *printer) trips(r report, whole bool) {
	p.f("\n%8s %6s %8s  trip", "stays", "files", "returns")
	for _, way := range r.Trips {
		p.f("%8d %6d %8d  %s (%s)", len(way.Stays), way.trip.Files(), way.trip.Returns(), way.Name, way.Start)
		if !whole {
			continue
		}
		for _, s := range way.Stays {
			p.f("%26s%s: %s", "", s.File, strings.Join(s.Doors, ", "))
		}
	}
}

func (p *printer) arrows(r report, path string) {
	for _, c := range r.Packages {
		if c.Path != path {
			continue
		}
		p.f("\narrows back up in %s: %d of %d", path, len(c.Back), c.Arrows)
		for _, a := range c.Back {
			p.f("  %s names what %s declares", a.From, a.To)
		}
	}
}

// missed prints the goals missed in the form of the list notYet.
func (p *printer) missed(r report) {
	all := r.missed()
	p.f("\ngoals missed: %d", len(all))
	for _, m := range all {
		p.f("\t%s", m.entry())
	}
}
