// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

const (
	plotWidth  = 20 * vg.Centimeter
	plotHeight = 13 * vg.Centimeter

	// plotFloor is the least TTFT that the axis shows, in seconds: it is
	// logarithmic and has no zero.
	plotFloor = 0.01
)

// plot draws TTFT p95 over the rate, a line for each rule and one for the
// limit. The name of the file tells the format.
func (r *Report) plot(file string) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s, %d engines of %d KV tokens", r.Workload, r.Engines, r.KVTokens)
	p.X.Label.Text = "sessions or requests per second"
	p.Y.Label.Text = "TTFT p95 (s)"
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	highest := 0.0
	for i, rule := range r.Rules {
		points := rule.plotPoints()
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("drawing rule %s: %w", rule.Rule, err)
		}
		line.Color, marks.Color = plotutil.Color(i), plotutil.Color(i)
		line.Dashes, marks.Shape = plotutil.Dashes(i), plotutil.Shape(i)
		p.Add(line, marks)
		p.Legend.Add(rule.Rule, line, marks)
		highest = max(highest, points[len(points)-1].X)
	}
	limit, err := plotter.NewLine(plotter.XYs{{X: 0, Y: r.Limit}, {X: highest, Y: r.Limit}})
	if err != nil {
		return fmt.Errorf("drawing the limit: %w", err)
	}
	p.Add(limit)
	return r.savePlot(p, file)
}

// savePlot writes the plot on a white ground.
func (r *Report) savePlot(p *plot.Plot, file string) error {
	format := filepath.Ext(file)
	if format != ".svg" && format != ".png" {
		return fmt.Errorf("unrecognized format '%s': it is neither .svg nor .png", format)
	}
	image, err := p.WriterTo(plotWidth, plotHeight, format[1:])
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := image.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// plotPoints are the points of a rule up to the first overloaded one.
func (r *RuleReport) plotPoints() plotter.XYs {
	var points plotter.XYs
	for _, p := range r.Points {
		if p.Result.Overloaded {
			break
		}
		points = append(points, plotter.XY{X: p.Rate, Y: max(p.Result.TTFT.P95, plotFloor)})
	}
	return points
}
