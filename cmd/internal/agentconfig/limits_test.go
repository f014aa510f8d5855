package agentconfig

import (
	"strings"
	"testing"
)

func TestLimitsValidate(t *testing.T) {
	for what, c := range map[string]struct {
		change  func(*Limits)
		problem string // empty for none
	}{
		"the default":      {change: func(*Limits) {}},
		"no writes":        {change: func(l *Limits) { l.WritesPerSecond = 0 }, problem: "writes_per_second"},
		"no burst":         {change: func(l *Limits) { l.WritesBurst = 0 }, problem: "writes_burst"},
		"too few bytes":    {change: func(l *Limits) { l.BytesPerSecond = 1023 }, problem: "bytes_per_second"},
		"bytes below 0":    {change: func(l *Limits) { l.BytesBurst = -1 }, problem: "bytes_burst"},
		"any number":       {change: func(l *Limits) { l.Applications, l.AppProjects = 0, 0 }},
		"a number below 0": {change: func(l *Limits) { l.Applications = -1 }, problem: "applications"},
		"no room":          {change: func(l *Limits) { l.TotalBytes = 0 }, problem: "total_bytes"},
	} {
		limits := DefaultLimits()
		c.change(&limits)
		err := limits.Validate()
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: Validate() = %v", what, err)
		}
	}
}
