package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

// NewRegistry returns a registry that already holds the metrics of the Go runtime
// and of the process, and argomesh_build_info, which is always 1.
func NewRegistry(build buildinfo.Info) *prometheus.Registry {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "argomesh_build_info",
		Help: "Build of this process, in the labels; the value is always 1.",
		ConstLabels: prometheus.Labels{
			"version":    build.Version,
			"revision":   build.Revision,
			"go_version": build.GoVersion,
		},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
	)
	return registry
}
