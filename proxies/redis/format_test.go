package redis

import (
	"testing"
	"time"
)

func TestFit(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	bad := formatStatus{known: true, asked: "2.gz", kept: "1.gz", at: now}
	for name, tt := range map[string]struct {
		before      formatStatus
		asked, kept string
		after       time.Duration
		want        formatStatus
	}{
		"the first answer":              {asked: "2.gz", want: formatStatus{known: true}},
		"the first that differs":        {asked: "2.gz", kept: "1.gz", want: bad},
		"again":                         {before: bad, asked: "2.gz", kept: "1.gz", after: time.Hour, want: formatStatus{known: true, asked: "2.gz", kept: "1.gz", at: now.Add(time.Hour)}},
		"mended":                        {before: bad, asked: "2.gz", after: time.Second, want: formatStatus{known: true}},
		"an older Argo CD asks as well": {before: bad, asked: "1.gz", after: time.Second, want: bad},
		"and nobody else for a while":   {before: bad, asked: "1.gz", after: mismatchFor, want: formatStatus{known: true}},
	} {
		if got := tt.before.next(tt.asked, tt.kept, now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: next() = %+v, want %+v", name, got, tt.want)
		}
	}
	if text := (formatStatus{known: true}).String(); text != "" {
		t.Errorf("one that fits says %q", text)
	}
}
