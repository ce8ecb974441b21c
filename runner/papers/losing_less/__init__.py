"""Losing Less: A Loss for Differentially Private Deep Learning (Shahin Shamsabadi and Papernot, PoPETs 2023)."""
