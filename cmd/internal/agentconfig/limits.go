package agentconfig

import (
	"errors"

	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/cmd/internal/config"
)

// Limits bound what the hub may have the agent write to the spoke's API server. Key:
// limits.
type Limits struct {
	WritesPerSecond int64 `koanf:"writes_per_second" help:"writes that the hub may have the agent make on the spoke in a second"`
	WritesBurst     int64 `koanf:"writes_burst" help:"the same at once, as for a first sync, after an hour without any"`
	BytesPerSecond  int64 `koanf:"bytes_per_second" help:"bytes that the hub may have the agent write on the spoke in a second, of the objects as its API server keeps them"`
	BytesBurst      int64 `koanf:"bytes_burst" help:"the same at once, as for a first sync, after an hour without any"`

	Applications     int   `koanf:"applications" help:"Applications of the hub on the spoke; 0 for any number"`
	AppProjects      int   `koanf:"app_projects" help:"AppProjects of the hub on the spoke; 0 for any number"`
	ApplicationBytes int   `koanf:"application_bytes" help:"the most that one Application of the hub may have, as JSON without managedFields"`
	AppProjectBytes  int   `koanf:"app_project_bytes" help:"the same of one AppProject"`
	TotalBytes       int64 `koanf:"total_bytes" help:"the most that all Applications and AppProjects of the hub may have together; one that is there and stays below 64 KiB is updated all the same"`
}

// DefaultLimits are those of an agent towards its hub.
func DefaultLimits() Limits {
	d, b := budget.DefaultLimits(), bounds.Default()
	return Limits{
		// How many there are is for the hub's people to say, up to total_bytes.
		ApplicationBytes: b.ApplicationBytes, AppProjectBytes: b.AppProjectBytes, TotalBytes: b.TotalBytes,
		WritesPerSecond: d.Writes.Rate, WritesBurst: d.Writes.Burst, BytesPerSecond: d.Bytes.Rate, BytesBurst: d.Bytes.Burst,
	}
}

// Validate reports every problem.
func (l Limits) Validate() error {
	var problems []error
	for _, c := range []struct {
		key          string
		value, least int64
	}{
		{"writes_per_second", l.WritesPerSecond, 1}, {"writes_burst", l.WritesBurst, 1},
		{"bytes_per_second", l.BytesPerSecond, 1024}, {"bytes_burst", l.BytesBurst, 1024},
		{"applications", int64(l.Applications), 0}, {"app_projects", int64(l.AppProjects), 0},
		{"application_bytes", int64(l.ApplicationBytes), 1024}, {"app_project_bytes", int64(l.AppProjectBytes), 1024},
		{"total_bytes", l.TotalBytes, 1 << 20},
	} {
		if c.value < c.least {
			problems = append(problems,
				config.Invalid(c.key, "%d lets the hub change nothing: use %d or more", c.value, c.least))
		}
	}
	return errors.Join(problems...)
}

// Bounds are those of the hub's objects.
func (l Limits) Bounds() bounds.Bounds {
	return bounds.Bounds{
		Applications: l.Applications, AppProjects: l.AppProjects,
		ApplicationBytes: l.ApplicationBytes, AppProjectBytes: l.AppProjectBytes, TotalBytes: l.TotalBytes,
	}
}
