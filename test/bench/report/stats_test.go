package report

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 0, 100)
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i))
	}
	for name, test := range map[string]struct {
		values []time.Duration
		q      float64
		want   time.Duration
	}{
		"nothing was measured":             {nil, 0.5, 0},
		"a single value is every quantile": {[]time.Duration{7}, 0.99, 7},
		"the least":                        {hundred, 0, 1},
		"the middle of an even number":     {hundred, 0.5, 50},
		"the middle of an odd number":      {[]time.Duration{30, 10, 20}, 0.5, 20},
		"one in a hundred is above":        {hundred, 0.99, 99},
		"the greatest":                     {hundred, 1, 100},
		"a rank between two goes up":       {[]time.Duration{1, 2, 3}, 0.34, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Quantile(test.values, test.q); got != test.want {
				t.Errorf("Quantile(%v) = %d, want %d", test.q, got, test.want)
			}
		})
	}
	if hundred[0] != 100 {
		t.Error("Quantile() changed its argument")
	}
}

func TestMilliseconds(t *testing.T) {
	if got := Milliseconds(1500 * time.Microsecond); got != 1.5 {
		t.Errorf("Milliseconds(1.5ms) = %v", got)
	}
}
